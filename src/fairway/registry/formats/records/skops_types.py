"""The types that skops loads without explicit trust, as of version 0.16: what is not named here needs consent.

A name that a newer skops trusts too only costs a flag; skops itself decides again when the model is loaded.
"""

from __future__ import annotations

ESTIMATORS = frozenset(
    """
    ARDRegression AdaBoostClassifier AdaBoostRegressor AdditiveChi2Sampler AffinityPropagation AgglomerativeClustering
    BaggingClassifier BaggingRegressor BayesianGaussianMixture BayesianRidge BernoulliNB BernoulliRBM Binarizer Birch
    BisectingKMeans CCA CalibratedClassifierCV CategoricalNB ClassicalMDS ClassifierChain ColumnTransformer ComplementNB
    CountVectorizer DBSCAN DecisionTreeClassifier DecisionTreeRegressor DictVectorizer DictionaryLearning DummyClassifier
    DummyRegressor ElasticNet ElasticNetCV EllipticEnvelope EmpiricalCovariance ExtraTreeClassifier ExtraTreeRegressor
    ExtraTreesClassifier ExtraTreesRegressor FactorAnalysis FastICA FeatureAgglomeration FeatureHasher FeatureUnion
    FixedThresholdClassifier FrozenEstimator FunctionTransformer GammaRegressor GaussianMixture GaussianNB
    GaussianProcessClassifier GaussianProcessRegressor GaussianRandomProjection GenericUnivariateSelect
    GradientBoostingClassifier GradientBoostingRegressor GraphicalLasso GraphicalLassoCV GridSearchCV HDBSCAN
    HashingVectorizer HistGradientBoostingClassifier HistGradientBoostingRegressor HuberRegressor IncrementalPCA
    IsolationForest Isomap IsotonicRegression KBinsDiscretizer KMeans KNNImputer KNeighborsClassifier KNeighborsRegressor
    KNeighborsTransformer KernelCenterer KernelDensity KernelPCA KernelRidge LabelBinarizer LabelEncoder LabelPropagation
    LabelSpreading Lars LarsCV Lasso LassoCV LassoLars LassoLarsCV LassoLarsIC LatentDirichletAllocation LedoitWolf
    LinearDiscriminantAnalysis LinearRegression LinearSVC LinearSVR LocalOutlierFactor LocallyLinearEmbedding
    LogisticRegression LogisticRegressionCV MDS MLPClassifier MLPRegressor MaxAbsScaler MeanShift MinCovDet MinMaxScaler
    MiniBatchDictionaryLearning MiniBatchKMeans MiniBatchNMF MiniBatchSparsePCA MissingIndicator MultiLabelBinarizer
    MultiOutputClassifier MultiOutputRegressor MultiTaskElasticNet MultiTaskElasticNetCV MultiTaskLasso MultiTaskLassoCV
    MultinomialNB NMF NearestCentroid NearestNeighbors NeighborhoodComponentsAnalysis Normalizer NuSVC NuSVR Nystroem OAS
    OPTICS OneClassSVM OneHotEncoder OneVsOneClassifier OneVsRestClassifier OrdinalEncoder OrthogonalMatchingPursuit
    OrthogonalMatchingPursuitCV OutputCodeClassifier PCA PLSCanonical PLSRegression PLSSVD PassiveAggressiveClassifier
    PassiveAggressiveRegressor PatchExtractor Perceptron Pipeline PoissonRegressor PolynomialCountSketch PolynomialFeatures
    PowerTransformer QuadraticDiscriminantAnalysis QuantileRegressor QuantileTransformer RANSACRegressor RBFSampler RFE RFECV
    RadiusNeighborsClassifier RadiusNeighborsRegressor RadiusNeighborsTransformer RandomForestClassifier RandomForestRegressor
    RandomTreesEmbedding RandomizedSearchCV RegressorChain Ridge RidgeCV RidgeClassifier RidgeClassifierCV RobustScaler
    SGDClassifier SGDOneClassSVM SGDRegressor SVC SVR SelectFdr SelectFpr SelectFromModel SelectFwe SelectKBest
    SelectPercentile SelfTrainingClassifier SequentialFeatureSelector ShrunkCovariance SimpleImputer SkewedChi2Sampler
    SparseCoder SparsePCA SparseRandomProjection SpectralBiclustering SpectralClustering SpectralCoclustering
    SpectralEmbedding SplineTransformer StackingClassifier StackingRegressor StandardScaler TSNE TargetEncoder
    TfidfTransformer TfidfVectorizer TheilSenRegressor TransformedTargetRegressor TruncatedSVD TunedThresholdClassifierCV
    TweedieRegressor VarianceThreshold VotingClassifier VotingRegressor
    """.split()
)
"""Classes of scikit-learn's estimators."""
INTERNAL = frozenset(
    """
    CyHalfPoissonLoss Hinge
    AbsoluteError ExponentialLoss HalfBinomialLoss HalfGammaLoss HalfLogitLink HalfMultinomialLoss HalfPoissonLoss
    HalfSquaredError HuberLoss IdentityLink Interval LogLink LogitLink MultinomialLogit PinballLoss _BinMapper
    """.split()
)
"""Classes within scikit-learn that its estimators hold."""
NUMPY = frozenset(
    """
    bool bool_ bytes_ clongdouble complex128 complex64 datetime64 float16 float32 float64 int16 int32 int64 int8
    longdouble longlong ma.MaskedArray ma.core.MaskedArray ndarray object_ random.Generator random.MT19937 random.PCG64
    random.PCG64DXSM random.Philox random.RandomState random.SFC64 random._generator.Generator random.mtrand.RandomState str_
    timedelta64 uint16 uint32 uint64 uint8 ulonglong void
    """.split()
)
"""Types of numpy, by their names within it."""
FUNCTIONS = frozenset(
    """
    absolute add arctan cbrt ceil cos cosh deg2rad divide exp exp2 expm1 fabs floor log log10 log1p log2 maximum minimum
    multiply negative power rad2deg reciprocal rint sign sin sinh sqrt square subtract tan tanh trunc
    """.split()
)
"""Functions of numpy that transform arrays element by element."""
